"""Seeing a store's file operations, and putting disk images into directories.

`inprocess` records what a store of this process does; `slots` holds images on a memory file system.
"""
