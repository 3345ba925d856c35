"""From linked instructions to steps: basic blocks, where operands stand, where variables lie."""
