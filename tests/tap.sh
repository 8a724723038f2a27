# SPDX-License-Identifier: Apache-2.0
# For shell tests:
#
#     . "$GYRE_TOP_SRC/tests/tap.sh"
#     run "$GYRE" version            # sets $code, $out, $err
#     is "$code" 0 "version is good"
#     has "$out" "gyre 0" "it names itself"
#     is "$(json .version)" 0.1.0 "..."    # of $out
#     done_testing
#
# $work is an empty folder, removed at the end.

work=$(mktemp -d) || exit 99
trap 'rm -rf "$work"' EXIT
tap_count=0
tap_failed=0
json_get=$GYRE_TOP_BUILD/tests/json_get

ok() { # status, name
    tap_count=$((tap_count + 1))
    if [ "$1" -eq 0 ]; then
        echo "ok $tap_count - $2"
    else
        tap_failed=$((tap_failed + 1))
        echo "not ok $tap_count - $2"
        return 1
    fi
}

is() { # seen, wanted, name
    if [ "$1" = "$2" ]; then
        ok 0 "$3"
    else
        ok 1 "$3"
        echo "# seen: $1" | sed '2,$s/^/# /'
        echo "# wanted: $2" | sed '2,$s/^/# /'
    fi
}

has() { # text, part, name
    case $1 in
    *"$2"*) ok 0 "$3" ;;
    *)
        ok 1 "$3"
        echo "# no \"$2\" in: $1" | sed '2,$s/^/# /'
        ;;
    esac
}

skip() { # name, reason
    tap_count=$((tap_count + 1))
    echo "ok $tap_count - $1 # SKIP $2"
}

run() {
    "$@" >"$work/tap.out" 2>"$work/tap.err" </dev/null
    code=$?
    out=$(cat "$work/tap.out")
    err=$(cat "$work/tap.err")
}

json() { # path in $out
    printf '%s\n' "$out" | "$json_get" "$1"
}

done_testing() {
    echo "1..$tap_count"
    [ "$tap_failed" -eq 0 ]
    exit
}
