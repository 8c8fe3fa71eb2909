// deny CALL[,CALL...] COMMAND...: run COMMAND with these system calls answered by EPERM, as the seccomp filter of a
// container does by default for those that place memory.
#define _GNU_SOURCE
#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

static const struct {
    const char * name;
    unsigned     number;
} calls[] = {
    { "get_mempolicy", SYS_get_mempolicy }, { "mbind", SYS_mbind },
    { "migrate_pages", SYS_migrate_pages }, { "move_pages", SYS_move_pages },
    { "set_mempolicy", SYS_set_mempolicy }, { "sched_setaffinity", SYS_sched_setaffinity },
};

enum { CALLS = sizeof calls / sizeof *calls };

static int find(const char * name) {
    for (int i = 0; i < CALLS; i++) {
        if (strcmp(calls[i].name, name) == 0) {
            return i;
        }
    }
    return -1;
}

// Load the number, two instructions per call (equal: return EPERM), allow the rest.
static int install(char * list) {
    struct sock_filter filter[2 * CALLS + 2];
    unsigned short     length = 0;
    filter[length++] =
        (struct sock_filter) BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr));
    for (char * name = strtok(list, ","); name; name = strtok(NULL, ",")) {
        const int call = find(name);
        if (call < 0 || length > 2 * CALLS) {
            fprintf(stderr, "deny: unknown call, or one too many: %s\n", name);
            return -1;
        }
        filter[length++] = (struct sock_filter) BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, calls[call].number, 0, 1);
        filter[length++] = (struct sock_filter) BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM);
    }
    filter[length++] = (struct sock_filter) BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);

    const struct sock_fprog program = { .len = length, .filter = filter };
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0 || prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) < 0) {
        perror("deny: seccomp");
        return -1;
    }
    return 0;
}

int main(int argc, char ** argv) {
    if (argc < 3) {
        fprintf(stderr, "usage: deny CALL[,CALL...] COMMAND...\n");
        return 2;
    }
    if (install(argv[1]) < 0) {
        return 126;
    }
    execvp(argv[2], argv + 2);
    perror("deny: exec");
    return 127;
}
