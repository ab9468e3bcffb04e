"""Trees, mirrors, patches and worktrees as plain bytes: git's formats, none of its machinery.

Nothing here runs the git program, hooks, filters, submodules or LFS: blobs are read from the object
database and files are written by this room itself.
"""
