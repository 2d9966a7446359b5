"""Trainers of other projects: Hugging Face, TRL, verl, PEFT."""
