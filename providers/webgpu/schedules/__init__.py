"""Schedules for GPUs: wide loads, tiles, workgroups that share an output."""
