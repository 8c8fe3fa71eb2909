#include "arguments.h"

char ** utf8_arguments(int *, char ** argv) {
    return argv; // bytes, as the file system has them
}
