"""LoRA adapters: products of low rank beside the weights of a model, in training and in inference."""
