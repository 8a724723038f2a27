dnl SPDX-License-Identifier: Apache-2.0
dnl The few checks that Gyre's configure needs beyond Autoconf's own.

dnl GYRE_CHECK_CHOICE(OPTION, VALUE, CHOICES)
dnl Stop when VALUE is not one of the space-separated CHOICES, so that a
dnl misspelt value is never taken for a default.
AC_DEFUN([GYRE_CHECK_CHOICE], [
  gyre_choice_ok=no
  for gyre_choice in $3; do
    AS_IF([test "x$2" = "x$gyre_choice"], [gyre_choice_ok=yes])
  done
  AS_IF([test $gyre_choice_ok = no],
        [AC_MSG_ERROR([$1=$2: the value is one of: $3])])
])

dnl GYRE_PART(NAME, MODULES, DEBIAN-PACKAGE, PURPOSE, [needed])
dnl A part that is found by pkg-config and chosen by --with-NAME=auto|yes|no.
dnl MODULES are alternatives, tried in order.  Sets with_NAME (yes, no), why_NAME
dnl (for the summary), NAME_CFLAGS, NAME_LIBS, NAME_PC, the config.h macro
dnl HAVE_NAME and the conditional HAVE_NAME.
AC_DEFUN([GYRE_PART], [
  m4_pushdef([UP], m4_translit([$1], [a-z-], [A-Z_]))
  m4_ifval([$5],
    [with_$1=yes],
    [AC_ARG_WITH([$1],
      [AS_HELP_STRING([--with-$1=auto|yes|no], [$4 @<:@auto@:>@])],
      [], [with_$1=auto])
     GYRE_CHECK_CHOICE([--with-$1], [$with_$1], [auto yes no])])
  why_$1=
  UP[]_CFLAGS=
  UP[]_LIBS=
  UP[]_PC=
  AS_IF([test "x$with_$1" = xno], [why_$1="off (--without-$1)"], [
    for gyre_module in m4_normalize([$2]); do
      AC_MSG_CHECKING([for $gyre_module])
      AS_IF([$PKG_CONFIG --exists "$gyre_module" 2>/dev/null], [
        UP[]_CFLAGS=`$PKG_CONFIG --cflags "$gyre_module"`
        UP[]_LIBS=`$PKG_CONFIG --libs "$gyre_module"`
        UP[]_PC=$gyre_module
        why_$1="`$PKG_CONFIG --modversion "$gyre_module"` ($gyre_module)"
        AC_MSG_RESULT([$why_$1])
        break
      ], [AC_MSG_RESULT([no])])
    done
    AS_IF([test -n "$UP[]_PC"], [with_$1=yes],
          [test "x$with_$1" = xyes],
          [AC_MSG_ERROR([$1 is missing ($4); install $3 (Debian, Ubuntu)m4_ifval([$5], [], [, or say --without-$1])])],
          [with_$1=no
           why_$1="off (not found; install $3)"])
  ])
  AS_IF([test "x$with_$1" = xyes],
        [AC_DEFINE([HAVE_]UP, [1], [Define to 1 for $1: $4.])])
  AM_CONDITIONAL([HAVE_]UP, [test "x$with_$1" = xyes])
  AC_SUBST(UP[_CFLAGS])
  AC_SUBST(UP[_LIBS])
  m4_popdef([UP])
])

dnl GYRE_HEADER_PART(NAME, HEADERS, FOLDERS, WHAT-TO-INSTALL, PURPOSE)
dnl As GYRE_PART for a part of which only headers are needed and which has no
dnl pkg-config file: all HEADERS are sought where the compiler looks, then in
dnl each of FOLDERS.  NAME_CFLAGS may be given to say where.
AC_DEFUN([GYRE_HEADER_PART], [
  m4_pushdef([UP], m4_translit([$1], [a-z-], [A-Z_]))
  AC_ARG_WITH([$1],
    [AS_HELP_STRING([--with-$1=auto|yes|no], [$5 @<:@auto@:>@])],
    [], [with_$1=auto])
  GYRE_CHECK_CHOICE([--with-$1], [$with_$1], [auto yes no])
  AC_ARG_VAR(UP[_CFLAGS], [where the headers of $1 are (-I...)])
  AS_IF([test "x$with_$1" = xno], [why_$1="off (--without-$1)"], [
    AC_MSG_CHECKING([for $2])
    gyre_saved_cppflags=$CPPFLAGS
    gyre_given=$UP[]_CFLAGS
    gyre_found=no
    for gyre_flag in "$gyre_given" m4_foreach_w([folder], [$3], [-I[]folder ]); do
      CPPFLAGS="$gyre_saved_cppflags $gyre_flag"
      AC_COMPILE_IFELSE([AC_LANG_PROGRAM([
m4_foreach_w([header], [$2], [[#include <]header[>
]])], [])], [gyre_found=yes; UP[]_CFLAGS=$gyre_flag; break])
    done
    CPPFLAGS=$gyre_saved_cppflags
    AC_MSG_RESULT([$gyre_found $UP[]_CFLAGS])
    AS_IF([test $gyre_found = yes],
            [with_$1=yes
             why_$1="headers found ($2) $UP[]_CFLAGS"],
          [test "x$with_$1" = xyes],
            [AC_MSG_ERROR([$1 is missing ($5); install $4, or say --without-$1])],
          [with_$1=no
           why_$1="off (not found; install $4)"])
  ])
  AS_IF([test "x$with_$1" = xyes],
        [AC_DEFINE([HAVE_]UP, [1], [Define to 1 for $1: $5.])])
  AM_CONDITIONAL([HAVE_]UP, [test "x$with_$1" = xyes])
  m4_popdef([UP])
])

dnl GYRE_FILE_PART(NAME, FILE, FOLDERS, DEBIAN-PACKAGE, PURPOSE)
dnl As GYRE_PART for a library that is opened at run time by its full path:
dnl FILE in the first of FOLDERS that has it, or the path given as
dnl --with-NAME=/PATH.  Defines the path as GYRE_NAME.
AC_DEFUN([GYRE_FILE_PART], [
  m4_pushdef([UP], m4_translit([$1], [a-z-], [A-Z_]))
  m4_pushdef([low], m4_translit([$1], [-], [_]))
  AC_ARG_WITH([$1],
    [AS_HELP_STRING([--with-$1=auto|yes|no|/PATH], [$5 @<:@auto@:>@])],
    [], [with_[]low=auto])
  gyre_file=
  AS_CASE([$with_[]low],
    [no], [why_[]low="off (--without-$1)"],
    [/*], [gyre_file=$with_[]low],
    [GYRE_CHECK_CHOICE([--with-$1], [$with_[]low], [auto yes no /PATH])
     AC_MSG_CHECKING([for $2])
     for gyre_folder in m4_normalize([$3]); do
       AS_IF([test -z "$gyre_file" && test -e "$gyre_folder/$2"],
             [gyre_file=$gyre_folder/$2])
     done
     AC_MSG_RESULT([${gyre_file:-no}])])
  AS_IF([test -n "$gyre_file"],
          [why_[]low=$gyre_file
           AC_DEFINE_UNQUOTED([GYRE_]UP, ["$gyre_file"],
                              [The library file for $5.])],
        [test "x$with_[]low" = xyes],
          [AC_MSG_ERROR([$1 is missing ($5); install $4 (Debian, Ubuntu), or say --without-$1])],
        [test "x$with_[]low" = xauto],
          [why_[]low="off (not found; install $4)"])
  AM_CONDITIONAL([HAVE_]UP, [test -n "$gyre_file"])
  m4_popdef([low])
  m4_popdef([UP])
])

dnl GYRE_FLAGS(VARIABLE, FLAGS)
dnl Append each flag that the C compiler takes without complaint.
AC_DEFUN([GYRE_FLAGS], [
  gyre_saved_cflags=$CFLAGS
  for gyre_flag in m4_normalize([$2]); do
    AC_MSG_CHECKING([whether $CC takes $gyre_flag])
    CFLAGS="$gyre_saved_cflags -Werror $gyre_flag"
    AC_COMPILE_IFELSE([AC_LANG_PROGRAM([], [])],
      [AC_MSG_RESULT([yes]); $1="$$1 $gyre_flag"],
      [AC_MSG_RESULT([no])])
  done
  CFLAGS=$gyre_saved_cflags
])

dnl GYRE_LINK_FLAGS(VARIABLE, FLAGS)
dnl The same for flags of the linker, tried on a program.
AC_DEFUN([GYRE_LINK_FLAGS], [
  gyre_saved_ldflags=$LDFLAGS
  for gyre_flag in m4_normalize([$2]); do
    AC_MSG_CHECKING([whether the linker takes $gyre_flag])
    LDFLAGS="$gyre_saved_ldflags $gyre_flag"
    AC_LINK_IFELSE([AC_LANG_PROGRAM([], [])],
      [AC_MSG_RESULT([yes]); $1="$$1 $gyre_flag"],
      [AC_MSG_RESULT([no])])
  done
  LDFLAGS=$gyre_saved_ldflags
])
