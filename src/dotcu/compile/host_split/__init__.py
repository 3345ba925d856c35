"""Files with host code: which declarations a device compiler can take, with lines and columns kept.

texts by file -> detect: the files that show host code, by signs that are cheap to look for
              -> parse: the declarations of each, for each branch of its #if
              -> select: those that stay, whole or as the head of a function -> DeviceParts
DeviceParts   -> include graph -> NVRTC; what it refuses goes back to select, which leaves it out
"""
