#include "buffer.h"

#include <stdio.h>

int main(void) {
    void * buffer = buffer_new(64);
    printf("%p\n", buffer);
    buffer_free(buffer);
    return 0;
}
