// The start of the program alone.
#include "numa_node.h"

int main(int argc, char ** argv) {
    const int done = numa_node_start(&argc, argv);
    return done < 0 ? 99 : done;
}
