/*
 * Preload library: lets unmodified SCSI generic clients (mtx, sg3-utils, ...) talk to a virtual tape library that
 * listens on unix sockets, without any SCSI support in the kernel.
 *
 *   SGSHIM="/dev/sg0=/run/vtl/changer.sock;/dev/sg1=/run/vtl/drive0.sock" LD_PRELOAD=./sgshim.so mtx -f /dev/sg0 status
 *
 * open() of a listed name connects to its socket; ioctl(SG_IO) on that descriptor sends the command over it. Wire
 * format (docs/formats/vtl.md), little-endian: request = CDB length, bytes out, room for bytes in, 0, CDB[16], data;
 * reply = status, bytes in, sense[96], data.
 *
 * SGSHIM_LIMIT=N makes it a host adapter that carries N bytes in one command.
 *
 *   cc -shared -fPIC -O2 -Wall -Wextra -o sgshim.so sgshim.c -ldl
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <endian.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <scsi/scsi.h>
#include <scsi/sg.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/un.h>
#include <unistd.h>

#define MAX_FD 65536
#define SENSE_BYTES 96
#define SG_MAJOR 21
#define CHECK_CONDITION_STATUS 2
#define DRIVER_SENSE 8

/* Of the kernel's <scsi/scsi_ioctl.h>; mtx crashes when these fail. */
#define GET_IDLUN 0x5382
#define GET_BUS_NUMBER 0x5386

/* Of <linux/fs.h>; an sg device answers in bytes. */
#define MOST_BYTES 0x1267

/* Descriptors that are connections to a device. */
static char is_device[MAX_FD];
static pthread_mutex_t one_command = PTHREAD_MUTEX_INITIALIZER;

/* Finds the socket of device `path` in $SGSHIM. */
static int find_socket(const char *path, char *socket_path, size_t room)
{
        const char *entry = getenv("SGSHIM");
        size_t name = path ? strlen(path) : 0;

        while (entry && name) {
                size_t length = strcspn(entry, ";");
                if (length > name && !strncmp(entry, path, name) && entry[name] == '=') {
                        size_t n = length - name - 1;
                        if (n >= room)
                                return 0;
                        memcpy(socket_path, entry + name + 1, n);
                        socket_path[n] = 0;
                        return 1;
                }
                entry = entry[length] ? entry + length + 1 : NULL;
        }
        return 0;
}

static int open_device(const char *socket_path)
{
        struct sockaddr_un address = { .sun_family = AF_UNIX };
        int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

        if (fd < 0)
                return -1;
        strncpy(address.sun_path, socket_path, sizeof(address.sun_path) - 1);
        if (fd >= MAX_FD || connect(fd, (struct sockaddr *)&address, sizeof(address))) {
                close(fd);
                errno = ENXIO;
                return -1;
        }
        is_device[fd] = 1;
        return fd;
}

static int device(int fd)
{
        return fd >= 0 && fd < MAX_FD && is_device[fd];
}

static int send_all(int fd, const void *data, size_t length)
{
        const char *at = data;

        while (length) {
                ssize_t n = send(fd, at, length, MSG_NOSIGNAL);
                if (n < 0 && errno == EINTR)
                        continue;
                if (n <= 0)
                        return -1;
                at += n;
                length -= n;
        }
        return 0;
}

static int receive_all(int fd, void *data, size_t length)
{
        char *at = data;

        while (length) {
                ssize_t n = recv(fd, at, length, 0);
                if (n < 0 && errno == EINTR)
                        continue;
                if (n <= 0)
                        return -1;
                at += n;
                length -= n;
        }
        return 0;
}

/* Most bytes in one command. */
static unsigned int limit(void)
{
        const char *given = getenv("SGSHIM_LIMIT");

        return given ? strtoul(given, NULL, 10) : 32 << 20;
}

/* One SG_IO command. Returns 0, or -1 when the connection is broken. */
static int run_command(int fd, sg_io_hdr_t *io)
{
        struct { uint32_t cdb_length, out, room, zero; unsigned char cdb[16]; } request = { 0 };
        struct { uint32_t status, in; unsigned char sense[SENSE_BYTES]; } reply;
        uint32_t out = io->dxfer_direction == SG_DXFER_TO_DEV ? io->dxfer_len : 0;
        uint32_t room = io->dxfer_direction == SG_DXFER_FROM_DEV ||
                        io->dxfer_direction == SG_DXFER_TO_FROM_DEV ? io->dxfer_len : 0;
        uint32_t in;

        if (io->cmd_len > sizeof(request.cdb) || io->iovec_count || io->dxfer_len > limit()) {
                errno = EINVAL;
                return -1;
        }
        request.cdb_length = htole32(io->cmd_len);
        request.out = htole32(out);
        request.room = htole32(room);
        memcpy(request.cdb, io->cmdp, io->cmd_len);
        if (send_all(fd, &request, sizeof(request)) || send_all(fd, io->dxferp, out) ||
            receive_all(fd, &reply, sizeof(reply)))
                goto broken;
        in = le32toh(reply.in);
        if (in > room || receive_all(fd, io->dxferp, in))
                goto broken;

        io->status = le32toh(reply.status);
        io->masked_status = (io->status >> 1) & 0x1f;
        io->host_status = io->driver_status = io->msg_status = 0;
        io->sb_len_wr = 0;
        io->duration = 0;
        io->resid = room - in;
        io->info = io->status ? SG_INFO_CHECK : SG_INFO_OK;
        if (io->status == CHECK_CONDITION_STATUS) {
                unsigned int n = 8 + reply.sense[7];
                if (n > SENSE_BYTES)
                        n = SENSE_BYTES;
                if (n > io->mx_sb_len)
                        n = io->mx_sb_len;
                io->driver_status = DRIVER_SENSE;
                if (io->sbp && n) {
                        memcpy(io->sbp, reply.sense, n);
                        io->sb_len_wr = n;
                }
        }
        return 0;
broken:
        errno = EIO;
        return -1;
}

/* Makes a stat buffer look like a SCSI generic device. */
static void look_like_sg(mode_t *mode, dev_t *rdev)
{
        *mode = S_IFCHR | 0600;
        *rdev = makedev(SG_MAJOR, 0);
}

static void *next(const char *name)
{
        return dlsym(RTLD_NEXT, name);
}

#define OPEN(NAME)                                                             \
        int NAME(const char *path, int flags, ...)                             \
        {                                                                      \
                char socket_path[sizeof(((struct sockaddr_un *)0)->sun_path)]; \
                int (*real)(const char *, int, ...) = next(#NAME);             \
                va_list rest;                                                  \
                int mode;                                                      \
                if (find_socket(path, socket_path, sizeof(socket_path)))       \
                        return open_device(socket_path);                       \
                va_start(rest, flags);                                         \
                mode = va_arg(rest, int);                                      \
                va_end(rest);                                                  \
                return real(path, flags, mode);                                \
        }
OPEN(open)
OPEN(open64)

#define OPEN_CHECKED(NAME, PLAIN)             \
        int NAME(const char *path, int flags) \
        {                                     \
                return PLAIN(path, flags, 0); \
        }
OPEN_CHECKED(__open_2, open)
OPEN_CHECKED(__open64_2, open64)

#define STAT(NAME, TYPE)                                               \
        int NAME(const char *path, struct TYPE *s)                     \
        {                                                              \
                char unused[sizeof(((struct sockaddr_un *)0)->sun_path)]; \
                int (*real)(const char *, struct TYPE *) = next(#NAME); \
                if (!find_socket(path, unused, sizeof(unused)))        \
                        return real(path, s);                          \
                memset(s, 0, sizeof(*s));                              \
                look_like_sg(&s->st_mode, &s->st_rdev);                \
                return 0;                                              \
        }
STAT(stat, stat)
STAT(stat64, stat64)

#define FSTAT(NAME, TYPE)                                  \
        int NAME(int fd, struct TYPE *s)                   \
        {                                                  \
                int (*real)(int, struct TYPE *) = next(#NAME); \
                if (!device(fd))                           \
                        return real(fd, s);                \
                memset(s, 0, sizeof(*s));                  \
                look_like_sg(&s->st_mode, &s->st_rdev);    \
                return 0;                                  \
        }
FSTAT(fstat, stat)
FSTAT(fstat64, stat64)

int close(int fd)
{
        int (*real)(int) = next("close");

        if (device(fd))
                is_device[fd] = 0;
        return real(fd);
}

int ioctl(int fd, unsigned long request, ...)
{
        int (*real)(int, unsigned long, void *) = next("ioctl");
        va_list rest;
        void *argument;
        int result;

        va_start(rest, request);
        argument = va_arg(rest, void *);
        va_end(rest);
        if (!device(fd))
                return real(fd, request, argument);
        switch (request) {
        case SG_IO:
                pthread_mutex_lock(&one_command);
                result = run_command(fd, argument);
                pthread_mutex_unlock(&one_command);
                return result;
        case SG_GET_VERSION_NUM:
                *(int *)argument = 30536;
                return 0;
        case SG_GET_RESERVED_SIZE:
                *(int *)argument = 4 << 20;
                return 0;
        case MOST_BYTES:
                *(int *)argument = limit();
                return 0;
        case SG_SET_RESERVED_SIZE:
        case SG_SET_TIMEOUT:
                return 0;
        case SG_GET_TIMEOUT:
                return 60000;
        case SG_GET_SCSI_ID:
                memset(argument, 0, sizeof(struct sg_scsi_id));
                return 0;
        case GET_IDLUN:
                memset(argument, 0, 2 * sizeof(int));
                return 0;
        case GET_BUS_NUMBER:
                *(int *)argument = 0;
                return 0;
        default:
                errno = ENOTTY;
                return -1;
        }
}
