// What `-m x.llamafile` stands for: the model inside, and the arguments that the archive brings along.
#pragma once

// Puts the models that are meant in the place of archives, and before the user's arguments, or around them, those of the
// archive that `-m` names. To be called before any argument is looked at: --numa-* may be among them. Returns -1 to go on,
// else the code to exit with (the message has been written). The words are the process's own as long as it lives.
int llamafile_arguments(int & argc, char **& argv);
