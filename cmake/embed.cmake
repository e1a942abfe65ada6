# Writes a file as a C array. A program of the device text (SOURCE is a header) is written with every
# #include "file" of its folder replaced by that file; any other file as it is, and no SOURCE as
# nothing. The result depends on the content of these files alone. The array ends with a zero. TYPE is
# char or, for files that are not text, unsigned char.
#
#   cmake -DSOURCE=kernels/gpu/qk_tiles_program.h -DNAME=qk_tiles_text -DTYPE=char \
#     -DOUT=file.c -P embed.cmake
cmake_minimum_required(VERSION 3.22)
set(hex "")
if("${SOURCE}" MATCHES "\\.h$")
  get_filename_component(folder ${SOURCE} DIRECTORY)
  file(READ ${SOURCE} text)
  while("${text}" MATCHES "#include \"([A-Za-z0-9_.]+)\"")
    set(name "${CMAKE_MATCH_1}")
    file(READ ${folder}/${name} part)
    string(REPLACE "#include \"${name}\"" "${part}" text "${text}")
  endwhile()
  file(WRITE ${OUT}.text "${text}")
  file(READ ${OUT}.text hex HEX)
  file(REMOVE ${OUT}.text)
elseif(SOURCE)
  file(READ ${SOURCE} hex HEX)
endif()

string(REGEX REPLACE "([0-9a-f][0-9a-f])" "0x\\1," bytes "${hex}")
string(REPEAT "0x..," 16 line)
string(REGEX REPLACE "(${line})" "\\1\n" bytes "${bytes}")
file(WRITE ${OUT} "/* Made by cmake/embed.cmake from kernels/gpu. */
const ${TYPE} ${NAME}[] = {
${bytes}0x00};
")
