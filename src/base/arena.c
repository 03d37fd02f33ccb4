/* Bump allocation in blocks that are freed together. */
#include "base/base.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define BLOCK_SIZE ((size_t)64 * 1024)

struct ls_arena_block {
    struct ls_arena_block *next;
    size_t used, size;
    _Alignas(max_align_t) char data[];
};

void *ls_arena_alloc(struct ls_arena *arena, size_t size)
{
    const size_t align = _Alignof(max_align_t);
    if (size > SIZE_MAX / 2)
        return NULL;
    size = (size + align - 1) / align * align;
    struct ls_arena_block *b = arena->head;
    if (!b || b->size - b->used < size) {
        size_t room = size > BLOCK_SIZE ? size : BLOCK_SIZE;
        b = calloc(1, sizeof *b + room);
        if (!b)
            return NULL;
        b->size = room;
        b->next = arena->head;
        arena->head = b;
    }
    void *p = b->data + b->used;
    b->used += size;
    return p;
}

char *ls_arena_strdup(struct ls_arena *arena, const char *s)
{
    size_t n = strlen(s) + 1;
    char *p = ls_arena_alloc(arena, n);
    if (p)
        memcpy(p, s, n);
    return p;
}

char *ls_arena_printf(struct ls_arena *arena, const char *fmt, ...)
{
    va_list ap, again;
    va_start(ap, fmt);
    va_copy(again, ap);
    int n = vsnprintf(NULL, 0, fmt, ap);
    va_end(ap);
    char *p = n < 0 ? NULL : ls_arena_alloc(arena, (size_t)n + 1);
    if (p)
        vsnprintf(p, (size_t)n + 1, fmt, again);
    va_end(again);
    return p;
}

void ls_arena_free(struct ls_arena *arena)
{
    while (arena->head) {
        struct ls_arena_block *next = arena->head->next;
        free(arena->head);
        arena->head = next;
    }
}
