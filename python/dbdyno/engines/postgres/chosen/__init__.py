"""Servers that variants name: installed versions, directories of programs, and servers that run already."""
