# Every library that we use, as one interface target each; names of Debian packages in
# scripts/install-deps.
find_package(PkgConfig REQUIRED)

function(bindery_dependency target)
  pkg_check_modules(${target} REQUIRED IMPORTED_TARGET ${ARGN})
  add_library(${target} INTERFACE)
  target_link_libraries(${target} INTERFACE PkgConfig::${target})
endfunction()

bindery_dependency(dep_event libevent libevent_openssl)
bindery_dependency(dep_curl libcurl)
bindery_dependency(dep_json json-c)
bindery_dependency(dep_ssl openssl)
bindery_dependency(dep_nghttp2 libnghttp2)
bindery_dependency(dep_sqlite sqlite3)
bindery_dependency(dep_pq libpq)
bindery_dependency(dep_protobuf libprotobuf-c)
bindery_dependency(dep_seccomp libseccomp)

# http_parser has no .pc file.
find_path(HTTP_PARSER_INCLUDE http_parser.h REQUIRED)
find_library(HTTP_PARSER_LIBRARY http_parser REQUIRED)
add_library(dep_http_parser INTERFACE)
target_include_directories(dep_http_parser SYSTEM INTERFACE ${HTTP_PARSER_INCLUDE})
target_link_libraries(dep_http_parser INTERFACE ${HTTP_PARSER_LIBRARY})

# evhtp.pc leaves its private libraries out.
bindery_dependency(dep_evhtp evhtp)
target_link_libraries(dep_evhtp INTERFACE event event_openssl ssl crypto onig pthread)

# Before libc among the libraries, mimalloc takes the place of malloc in all of them.
add_library(dep_allocator INTERFACE)
if(BINDERY_MIMALLOC AND NOT BINDERY_SANITIZE)
  find_library(MIMALLOC_LIBRARY mimalloc REQUIRED)
  target_link_libraries(dep_allocator INTERFACE -Wl,--no-as-needed ${MIMALLOC_LIBRARY} -Wl,--as-needed)
endif()
