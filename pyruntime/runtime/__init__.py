"""The part of the runtime that both executors share. scripts/javascript translates it to web/runtime/."""
