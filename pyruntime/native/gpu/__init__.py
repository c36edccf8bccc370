"""The native GPU: the device, its tensors, and transfers between its memory and linear memory."""
