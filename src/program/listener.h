// Where the server listens.
#pragma once

#include "common.h"

#include <string>

constexpr int PORT_UNASKED = -0x10000; // nothing that anybody asks for

// params.port: PORT_UNASKED becomes 8080, or the next one that is free, which is said. Returns 0, or the code to exit with:
// one that was asked for is taken, which has been said, too.
int choose_port(common_params & params);
// The server's address for programs on this machine; "" where it has none (UNIX sockets only).
std::string address_of(const common_params & params);
