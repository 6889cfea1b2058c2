"""Turns of callers: queues and threads that they share, where no caller makes the others wait."""
