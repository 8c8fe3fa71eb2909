#include "buffer.h"

#include <stdlib.h>

// A buffer of at least one byte.
void * buffer_new(size_t size) {
    if (size == 0) {
        size = 1;
    }
    return malloc(size);
}

// What follows keeps the two functions apart,
// so that patches of one and of the other
// do not share context.

// Frees a buffer; NULL is fine.
void buffer_free(void * buffer) {
    if (buffer == NULL) {
        return;
    }
    free(buffer);
}
