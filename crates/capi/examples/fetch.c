/* Copies a file out of a namespace and says how far a recall is: fetch SOCKET PATH FILE
 *
 *     cc fetch.c $(pkg-config --cflags --libs libthermo) -o fetch
 */
#include <stdio.h>
#include <stdlib.h>
#include <fcntl.h>
#include <unistd.h>
#include <thermo.h>

static void fail(const char *doing) {
    fprintf(stderr, "%s: %s\n", doing, thermo_error());
    exit(1);
}

int main(int argc, char **argv) {
    if (argc != 4) {
        fprintf(stderr, "usage: fetch SOCKET PATH FILE\n");
        return 2;
    }
    thermo_session *session = thermo_connect(argv[1], NULL);
    if (!session)
        fail("cannot connect");

    struct thermo_state state;
    if (thermo_state(session, argv[2], &state))
        fail("cannot look");
    if (state.residency == THERMO_OFFLINE) {
        struct thermo_request request;
        const char *paths[] = {argv[2]};
        if (thermo_stage(session, paths, 1, 0, &request))
            fail("cannot ask for it");
        while (request.state == THERMO_QUEUED || request.state == THERMO_ACTIVE) {
            fprintf(stderr, "request %llu: %u %%, %lld s to go\n", (unsigned long long)request.id, request.percent,
                    (long long)request.eta_s);
            usleep(200000);
            if (thermo_request(session, request.id, &request))
                fail("cannot follow it");
        }
        if (request.state != THERMO_DONE) {
            fprintf(stderr, "it cannot come back; see `thermo request show %llu`\n", (unsigned long long)request.id);
            return 1;
        }
    }

    thermo_file *file = thermo_open(session, argv[2], O_RDONLY, 0);
    if (!file)
        fail("cannot open it");
    FILE *out = fopen(argv[3], "wb");
    if (!out) {
        perror(argv[3]);
        return 1;
    }
    static char buffer[1 << 20];
    off_t at = 0;
    ssize_t n;
    while ((n = thermo_pread(file, buffer, sizeof buffer, at)) > 0) {
        if (fwrite(buffer, 1, n, out) != (size_t)n) {
            perror(argv[3]);
            return 1;
        }
        at += n;
    }
    if (n < 0)
        fail("cannot read it");
    if (fclose(out)) {
        perror(argv[3]);
        return 1;
    }
    if (thermo_close(file))
        fail("cannot close it");
    thermo_disconnect(session);
    return 0;
}
