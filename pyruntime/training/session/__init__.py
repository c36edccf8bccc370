"""What the hosts of training sessions share: steps, states, checkpoints, exports."""
