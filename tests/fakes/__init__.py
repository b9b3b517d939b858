"""Test doubles of the engine: a network in memory and in virtual time, and its nodes."""
