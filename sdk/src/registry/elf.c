/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which libraries a shared object asks for, read from its bytes.
 *
 *     ELF header -> program headers -> PT_DYNAMIC -> DT_NEEDED (offsets)
 *                                   -> PT_LOAD maps DT_STRTAB to the file
 *
 * Read before dlopen: the loader maps a cut file without looking at its end,
 * and the process then dies of SIGBUS instead of getting an error.
 */
#include "config.h"

#include "registry/registry.h"

#include <elf.h>
#include <string.h>

typedef struct image {
    const uint8_t *bytes;
    size_t size;
    Elf64_Ehdr header;
} image;

/* Copied out: nothing in a file need be aligned. */
static bool read_at(const image *in, uint64_t offset, void *out, size_t size)
{
    if (offset > in->size || size > in->size - offset)
        return false;
    memcpy(out, in->bytes + offset, size);
    return true;
}

static bool segment(const image *in, size_t index, Elf64_Phdr *out)
{
    return read_at(in, in->header.e_phoff + index * sizeof(*out), out,
                   sizeof(*out));
}

static const char *check_header(image *in)
{
    const unsigned char *ident = in->header.e_ident;
    const uint16_t one = 1;
    uint8_t low;

    memcpy(&low, &one, 1);
    if (!read_at(in, 0, &in->header, sizeof(in->header)) ||
        memcmp(ident, ELFMAG, SELFMAG) != 0)
        return "not a shared object (no ELF header)";
    if (ident[EI_CLASS] != ELFCLASS64)
        return "built for another machine (not 64-bit)";
    if (ident[EI_DATA] != (low ? ELFDATA2LSB : ELFDATA2MSB))
        return "built for another machine (byte order)";
#if defined(__x86_64__)
    if (in->header.e_machine != EM_X86_64)
        return "built for another machine (not x86-64)";
#elif defined(__aarch64__)
    if (in->header.e_machine != EM_AARCH64)
        return "built for another machine (not AArch64)";
#endif
    if (in->header.e_type != ET_DYN)
        return "an ELF file, but not a shared object; link with -shared";
    if (in->header.e_phentsize != sizeof(Elf64_Phdr) ||
        in->header.e_phoff > in->size)
        return "damaged: program headers";
    return NULL;
}

/* File offset of a virtual address. */
static bool offset_of(const image *in, uint64_t address, uint64_t *out)
{
    Elf64_Phdr load;

    for (size_t i = 0; i < in->header.e_phnum; i++) {
        if (!segment(in, i, &load))
            return false;
        if (load.p_type == PT_LOAD && address >= load.p_vaddr &&
            address - load.p_vaddr < load.p_filesz) {
            *out = load.p_offset + (address - load.p_vaddr);
            return true;
        }
    }
    return false;
}

static const char *check_segments(const image *in, Elf64_Phdr *dynamic)
{
    Elf64_Phdr one;

    memset(dynamic, 0, sizeof(*dynamic));
    for (size_t i = 0; i < in->header.e_phnum; i++) {
        if (!segment(in, i, &one))
            return "cut short: program headers are missing";
        if (one.p_type != PT_LOAD && one.p_type != PT_DYNAMIC)
            continue;
        if (one.p_offset > in->size || one.p_filesz > in->size - one.p_offset)
            return "cut short: the file ends inside a segment";
        if (one.p_type == PT_DYNAMIC)
            *dynamic = one;
    }
    if (dynamic->p_type != PT_DYNAMIC)
        return "not a shared object (no dynamic section)";
    return NULL;
}

static bool dynamic_at(const image *in, const Elf64_Phdr *dynamic, size_t i,
                       Elf64_Dyn *out)
{
    return i < dynamic->p_filesz / sizeof(*out) &&
           read_at(in, dynamic->p_offset + i * sizeof(*out), out,
                   sizeof(*out)) &&
           out->d_tag != DT_NULL;
}

bool gyre_elf_needed(const uint8_t *bytes, size_t size,
                     int (*each)(void *user, const char *library), void *user,
                     const char **why)
{
    image in = {.bytes = bytes, .size = size};
    Elf64_Phdr dynamic;
    Elf64_Dyn tag;
    uint64_t strings = 0, offset;
    bool found = false;

    *why = check_header(&in);
    if (*why == NULL)
        *why = check_segments(&in, &dynamic);
    if (*why != NULL)
        return false;
    for (size_t i = 0; dynamic_at(&in, &dynamic, i, &tag); i++) {
        if (tag.d_tag == DT_STRTAB)
            found = offset_of(&in, tag.d_un.d_ptr, &strings);
    }
    if (!found) {
        *why = "damaged: no string table";
        return false;
    }
    for (size_t i = 0; dynamic_at(&in, &dynamic, i, &tag); i++) {
        if (tag.d_tag != DT_NEEDED)
            continue;
        if (!gyre_add(strings, tag.d_un.d_val, &offset) || offset >= size ||
            memchr(bytes + offset, '\0', size - offset) == NULL) {
            *why = "damaged: a library's name lies outside the file";
            return false;
        }
        if (each(user, (const char *)bytes + offset) != 0)
            return true;
    }
    return true;
}

bool gyre_elf_allowed(const char *library)
{
    static const char *const stems[] = {
        "libc.",    "libm.",    "ld-linux",  "ld64.",    "ld-musl",
        "libmvec.", "libasan.", "libubsan.", "libtsan.", "libgcov"};

    for (size_t i = 0; i < sizeof(stems) / sizeof(stems[0]); i++) {
        if (strncmp(library, stems[i], strlen(stems[i])) == 0)
            return true;
    }
    return false;
}
