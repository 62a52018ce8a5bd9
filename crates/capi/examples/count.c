/* Adds one to a number in a file, so many times; however many programs on however many hosts do so at once, none is lost: count SOCKET PATH TIMES
 *
 *     cc count.c $(pkg-config --cflags --libs libthermo) -o count
 */
#include <stdio.h>
#include <stdlib.h>
#include <thermo.h>

static void fail(const char *doing) {
    fprintf(stderr, "%s: %s\n", doing, thermo_error());
    exit(1);
}

int main(int argc, char **argv) {
    if (argc != 4) {
        fprintf(stderr, "usage: count SOCKET PATH TIMES\n");
        return 2;
    }
    thermo_session *session = thermo_connect(argv[1], NULL);
    if (!session)
        fail("cannot connect");
    thermo_file *file = thermo_open(session, argv[2], O_RDWR | O_CREAT, 0644);
    if (!file)
        fail("cannot open it");
    for (int times = atoi(argv[3]); times > 0; times--) {
        /* The whole file, for as long as it takes to get it. */
        if (thermo_lock(file, F_WRLCK, 0, 0, -1))
            fail("cannot lock it");
        char text[21] = "";
        if (thermo_pread(file, text, sizeof text - 1, 0) < 0)
            fail("cannot read it");
        int length = snprintf(text, sizeof text, "%lld", atoll(text) + 1);
        if (thermo_pwrite(file, text, length, 0) < 0)
            fail("cannot write it");
        if (thermo_lock(file, F_UNLCK, 0, 0, 0))
            fail("cannot flush and unlock it");
    }
    if (thermo_close(file))
        fail("cannot close it");
    thermo_disconnect(session);
    return 0;
}
