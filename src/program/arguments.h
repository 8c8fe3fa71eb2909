// What the user typed, as UTF-8: that is how llama.cpp and the core take the names of files.
#pragma once

// The words of the command line as a null-terminated array that may be written to; *argc becomes their number. Variables
// of the environment whose names begin with LLAMA_ are UTF-8 from here on, too. To be called once, first in main.
char ** utf8_arguments(int * argc, char ** argv);
