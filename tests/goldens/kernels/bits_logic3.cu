// lop3: logic of three words by a table.

#include "spellings.cuh"

SPELLED(bits_logic3) {
    OPERANDS;
    WITH_LITERAL("lop3.b32", 0x00);
    WITH_LITERAL("lop3.b32", 0x01);
    WITH_LITERAL("lop3.b32", 0x1E);
    WITH_LITERAL("lop3.b32", 0x2D);
    WITH_LITERAL("lop3.b32", 0x6A);
    WITH_LITERAL("lop3.b32", 0x80);
    WITH_LITERAL("lop3.b32", 0x96);
    WITH_LITERAL("lop3.b32", 0xB8);
    WITH_LITERAL("lop3.b32", 0xCA);
    WITH_LITERAL("lop3.b32", 0xE8);
    WITH_LITERAL("lop3.b32", 0xFE);
    WITH_LITERAL("lop3.b32", 0xFF);
    LOGIC_AND_PREDICATE("lop3.or.b32", 0x80);
    LOGIC_AND_PREDICATE("lop3.or.b32", 0x96);
    LOGIC_AND_PREDICATE("lop3.or.b32", 0x01);
    LOGIC_AND_PREDICATE("lop3.and.b32", 0x80);
    LOGIC_AND_PREDICATE("lop3.and.b32", 0x96);
    LOGIC_AND_PREDICATE("lop3.and.b32", 0x01);
}
