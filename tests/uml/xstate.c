/*
 * Preload library for user-mode Linux before 6.13 on processors whose extended state is larger than its buffer: pads what it
 * gives to PTRACE_SETREGSET(NT_X86_XSTATE), which the kernel would refuse.
 *
 *   cc -O2 -shared -fPIC -o xstate.so xstate.c -ldl
 */
#define _GNU_SOURCE
#include <cpuid.h>
#include <dlfcn.h>
#include <stdarg.h>
#include <stdint.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/uio.h>

#define SETREGSET 0x4205
#define XSTATE 0x202

long ptrace(enum __ptrace_request request, ...)
{
        static long (*real)(enum __ptrace_request, ...);
        static unsigned char whole[65536] __attribute__((aligned(64)));
        unsigned int a = 0, size = 0, c = 0, d = 0;
        va_list rest;
        int pid;
        void *address;
        struct iovec *data;

        if (!real)
                real = dlsym(RTLD_NEXT, "ptrace");
        va_start(rest, request);
        pid = va_arg(rest, int);
        address = va_arg(rest, void *);
        data = va_arg(rest, struct iovec *);
        va_end(rest);
        if ((int)request == SETREGSET && (uintptr_t)address == XSTATE) {
                __cpuid_count(0xd, 0, a, size, c, d);
                if (data->iov_len < size && size <= sizeof(whole)) {
                        struct iovec padded = { whole, size };

                        memset(whole, 0, size);
                        memcpy(whole, data->iov_base, data->iov_len);
                        /* Only the states that it knows: x87, SSE, AVX ... */
                        *(uint64_t *)(whole + 512) &= 0x2ff;
                        return real(request, pid, address, &padded);
                }
        }
        return real(request, pid, address, data);
}
