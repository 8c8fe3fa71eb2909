// Shows on stderr how far loading is: as a line that is rewritten where stderr is a terminal, else as a few plain lines.
#pragma once

// From here on. quiet: nothing unless on a terminal, and nothing stays there. Once a process.
void show_progress(bool quiet);
// Takes the line away, if there is one, and shows no more.
void wipe_progress();
