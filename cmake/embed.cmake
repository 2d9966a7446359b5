# Writes the files of FOLDER into OUTPUT, the source of src/serve/api/page_files.h.
cmake_policy(VERSION 3.25)
file(GLOB files ${FOLDER}/*)
set(arrays "")
set(table "")
set(index 0)
foreach(file ${files})
  get_filename_component(name ${file} NAME)
  file(READ ${file} hex HEX)
  file(SHA256 ${file} hash)
  string(SUBSTRING ${hash} 0 32 hash)
  file(SIZE ${file} size)
  string(REGEX REPLACE "([0-9a-f][0-9a-f])" "\\\\x\\1" text "${hex}")
  string(APPEND arrays "const char kFile${index}[] = \"${text}\";\n")
  string(APPEND table "    {\"${name}\", \"\\\"${hash}\\\"\", {kFile${index}, ${size}}},\n")
  math(EXPR index "${index} + 1")
endforeach()
file(CONFIGURE OUTPUT ${OUTPUT} @ONLY CONTENT "// Made from src/serve/page by cmake/embed.cmake.
#include \"serve/api/page_files.h\"

namespace deltawire {
namespace {

@arrays@
const PageFile kFiles[] = {
@table@};

}  // namespace

std::span<const PageFile> page_files() { return kFiles; }

}  // namespace deltawire
")
