# SPDX-License-Identifier: Apache-2.0
# cmake -DINPUT=file -DOUTPUT=file.cpp -DHEADER=folder/name.hpp -DFUNCTION=space::name -P EmbedBytes.cmake: the kernels' image as a C++
# array, returned by FUNCTION, which HEADER declares; without INPUT an empty one.
set(bytes "")
set(length 0)
if(INPUT)
  file(READ ${INPUT} hex HEX)
  file(SIZE ${INPUT} length)
  string(REGEX REPLACE "(..)" "0x\\1," bytes "${hex}")
endif()
file(WRITE ${OUTPUT} "// Generated. The kernels' image, aligned as the driver wants it.
#include \"${HEADER}\"
namespace {
alignas(16) const unsigned char image[] = {${bytes}0};
}
std::span<const unsigned char> ${FUNCTION}() { return {image, ${length}}; }
")
