"""The kernel suite, over every kernel, against the contract `_native.pyi` alone.

A package, so that its files may have the names of files in other folders.
"""
