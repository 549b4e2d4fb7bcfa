# Messages: protobuf-c from openshell.proto and the well-known Struct (the packages ship no C for it).
find_program(PROTOC_C protoc-c REQUIRED)
find_path(PROTOBUF_WELL_KNOWN google/protobuf/struct.proto PATHS /usr/include REQUIRED)
set(_gen ${CMAKE_BINARY_DIR}/gen/openshell)
file(MAKE_DIRECTORY ${_gen})
add_custom_command(
  OUTPUT ${_gen}/openshell.pb-c.c ${_gen}/openshell.pb-c.h ${_gen}/google/protobuf/struct.pb-c.c
         ${_gen}/google/protobuf/struct.pb-c.h
  COMMAND ${PROTOC_C} -I${PROJECT_SOURCE_DIR}/src/backends/openshell -I${PROTOBUF_WELL_KNOWN}
          --c_out=${_gen} openshell.proto google/protobuf/struct.proto
  DEPENDS ${PROJECT_SOURCE_DIR}/src/backends/openshell/openshell.proto)
add_library(bindery_openshell_messages STATIC ${_gen}/openshell.pb-c.c
                                              ${_gen}/google/protobuf/struct.pb-c.c)
target_include_directories(bindery_openshell_messages SYSTEM PUBLIC ${_gen})
target_link_libraries(bindery_openshell_messages PUBLIC dep_protobuf)
target_compile_options(bindery_openshell_messages PRIVATE -w)
target_link_libraries(${component} PUBLIC bindery_openshell_messages)
