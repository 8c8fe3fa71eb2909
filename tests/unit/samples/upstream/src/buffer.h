#include <stddef.h>

void * buffer_new(size_t size);
void   buffer_free(void * buffer);
