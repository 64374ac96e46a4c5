"""Benchmarks of filch against what a program would use instead, side by side in one run.  See README.md here.

Nothing here asserts a time: the figures are for people, and for comparing two commits.
"""
