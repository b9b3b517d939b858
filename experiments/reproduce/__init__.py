"""The papers' tables and figures, row by row."""
