#include "replica/unpack_file.h"

#include "base/file.h"
#include "base/guard.h"
#include "format/packed_file.h"
#include "replica/local_file.h"

namespace deltawire {
namespace fs = std::filesystem;

Status unpack_file(const fs::path& from, const fs::path& to, ThreadPool* pool) {
  return guard_memory("unpacking", [&]() -> Status {
    DW_ASSIGN_OR_RETURN(const auto packed, MappedFile::open(from));
    DW_ASSIGN_OR_RETURN(const PackedFile file, parse_packed(packed->bytes()));
    DW_RETURN_IF_ERROR(create_file(to, file.plain_bytes));
    DW_ASSIGN_OR_RETURN(PatchedFile plain, PatchedFile::open(to));
    DW_RETURN_IF_ERROR(unpack(file, packed->bytes(), plain.bytes(), pool));
    DW_RETURN_IF_ERROR(plain.check_whole());
    DW_RETURN_IF_ERROR(packed->check_whole());
    std::error_code error;
    fs::remove(from, error);  // its folder goes when all is done
    return {};
  });
}

}  // namespace deltawire
