# Compiler flags of our own code, as one interface library.
add_library(bindery_flags INTERFACE)
target_include_directories(bindery_flags INTERFACE ${PROJECT_SOURCE_DIR}/src)
target_compile_definitions(bindery_flags INTERFACE _GNU_SOURCE
  BINDERY_VERSION="${PROJECT_VERSION}")
target_compile_options(bindery_flags INTERFACE
  -Wall -Wextra -Wpedantic -Wshadow -Wswitch-enum
  -Wimplicit-fallthrough -Wstrict-prototypes -Wvla -Wmissing-prototypes -Wformat=2
  $<$<C_COMPILER_ID:GNU>:-Wjump-misses-init>
  # in macros of json-c and libseccomp; gcc looks at our own initialisers
  $<$<C_COMPILER_ID:Clang>:-Wno-gnu-statement-expression>
  $<$<C_COMPILER_ID:Clang>:-Wno-missing-field-initializers>
  $<$<BOOL:${BINDERY_WERROR}>:-Werror>)

# What Criterion's macros cannot bear: for src/ only.
add_library(bindery_strict INTERFACE)
target_compile_options(bindery_strict INTERFACE -Wconversion -Wno-sign-conversion)

if(BINDERY_SANITIZE)
  target_compile_options(bindery_flags INTERFACE -fsanitize=address,undefined
    -fno-sanitize-recover=all -fno-omit-frame-pointer)
  target_link_options(bindery_flags INTERFACE -fsanitize=address,undefined)
elseif(BINDERY_FUZZ)
  target_compile_options(bindery_flags INTERFACE -fsanitize=address,undefined,fuzzer-no-link
    -fno-sanitize-recover=all -fno-omit-frame-pointer)
  target_link_options(bindery_flags INTERFACE -fsanitize=address,undefined)
elseif(NOT CMAKE_BUILD_TYPE STREQUAL Debug)
  target_compile_options(bindery_flags INTERFACE -D_FORTIFY_SOURCE=2 -fstack-protector-strong
    -fstack-clash-protection -fPIE)
  target_link_options(bindery_flags INTERFACE -pie -Wl,-z,relro,-z,now)
endif()
if(BINDERY_COVERAGE)
  target_compile_options(bindery_flags INTERFACE --coverage)
  target_link_options(bindery_flags INTERFACE --coverage)
endif()
if(BINDERY_LTO)
  set(CMAKE_INTERPROCEDURAL_OPTIMIZATION ON)
endif()

find_program(CCACHE ccache)
if(CCACHE)
  set(CMAKE_C_COMPILER_LAUNCHER ${CCACHE})
endif()
