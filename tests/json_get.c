/* SPDX-License-Identifier: Apache-2.0 */
/*
 * For shell tests: json_get PATH < text prints the value at PATH of exactly one
 * strict JSON value: "." the whole, ".build.lua", ".0.name"; a last "#" prints
 * the number of members.  Exit 1: no such value; 2: no JSON.
 */
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static json_t *step(json_t *value, const char *key)
{
    if (json_is_array(value))
        return json_array_get(value, (size_t)atol(key));
    return json_object_get(value, key);
}

static int print(json_t *value)
{
    if (json_is_string(value))
        puts(json_string_value(value));
    else
        json_dumpf(value, stdout, JSON_ENCODE_ANY | JSON_COMPACT);
    return 0;
}

int main(int argc, char **argv)
{
    json_error_t error;
    json_t *root =
        json_loadf(stdin, JSON_DECODE_ANY | JSON_REJECT_DUPLICATES, &error);
    json_t *value = root;
    char *path = argc == 2 ? argv[1] : NULL;

    if (root == NULL || path == NULL) {
        fprintf(stderr, "json_get: %s\n", root ? "no path" : error.text);
        return 2;
    }
    for (char *key = strtok(path, "."); key != NULL; key = strtok(NULL, ".")) {
        if (strcmp(key, "#") == 0) {
            printf("%zu\n", json_is_array(value) ? json_array_size(value)
                                                 : json_object_size(value));
            value = NULL;
            break;
        }
        value = step(value, key);
        if (value == NULL) {
            json_decref(root);
            return 1;
        }
    }
    if (value != NULL)
        print(value);
    json_decref(root);
    return 0;
}
