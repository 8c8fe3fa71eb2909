// console_run.exe FILE COMMAND...: runs a program, hands it the console events whose numbers appear in FILE, one digit each,
// as Windows does (by a thread in the program that begins at CtrlRoutine), and returns its exit code.
#include <windows.h>

#include <stdio.h>
#include <wchar.h>

static void hand_over(HANDLE process, int event) {
    union {
        FARPROC any;
        LPTHREAD_START_ROUTINE routine;
    } found = { GetProcAddress(GetModuleHandleA("kernelbase.dll"), "CtrlRoutine") };
    CreateRemoteThread(process, NULL, 0, found.routine, (void *) (UINT_PTR) event, 0, NULL);
}

int main(int argc, char ** argv) {
    wchar_t * command = GetCommandLineW(); // this program's name and FILE, which have no spaces, come first
    for (int i = 0; i < 2; i++) {
        command = wcschr(command, L' ');
        if (argc < 3 || !command) {
            return 99;
        }
        command += wcsspn(command, L" ");
    }
    STARTUPINFOW start = { .cb = sizeof(start) };
    PROCESS_INFORMATION process;
    if (!CreateProcessW(NULL, command, NULL, NULL, TRUE, 0, NULL, NULL, &start, &process)) {
        return 99;
    }
    long heeded = 0; // digits
    while (WaitForSingleObject(process.hProcess, 20) == WAIT_TIMEOUT) {
        FILE * file = fopen(argv[1], "rb");
        if (file && fseek(file, heeded, SEEK_SET) == 0) {
            for (int digit; (digit = fgetc(file)) != EOF; heeded++) {
                hand_over(process.hProcess, digit - '0');
            }
        }
        if (file) {
            fclose(file);
        }
    }
    DWORD code;
    GetExitCodeProcess(process.hProcess, &code);
    return (int) code;
}
