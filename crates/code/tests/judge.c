/* Writes the parity that ISA-L computes: judge K M LENGTH FILE. */
#include <isa-l/erasure_code.h>
#include <stdio.h>
#include <stdlib.h>

int main(int argc, char **argv)
{
    if (argc != 5)
        return 2;
    int k = atoi(argv[1]), m = atoi(argv[2]), length = atoi(argv[3]);
    FILE *file = fopen(argv[4], "rb");
    unsigned char *matrix = malloc((size_t)(k + m) * k), *tables = malloc((size_t)32 * k * m);
    unsigned char *bytes = malloc((size_t)(k + m) * length);
    unsigned char **units = malloc((size_t)(k + m) * sizeof *units);
    if (!file || !matrix || !tables || !bytes || !units)
        return 3;
    if (fread(bytes, length, k, file) != (size_t)k)
        return 4;
    for (int n = 0; n < k + m; n++)
        units[n] = bytes + (size_t)n * length;
    gf_gen_cauchy1_matrix(matrix, k + m, k);
    ec_init_tables(k, m, matrix + (size_t)k * k, tables);
    ec_encode_data(length, k, m, tables, units, units + k);
    return fwrite(units[k], length, m, stdout) == (size_t)m ? 0 : 5;
}
