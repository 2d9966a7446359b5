#include "delta/temporary_folder.h"

#include "base/file.h"
#include "base/temporary.h"

namespace deltawire {
namespace fs = std::filesystem;

Result<fs::path> create_temporary_folder(const fs::path& out) {
  fs::path temporary = temporary_path(out);
  std::error_code error;
  if (!fs::create_directory(temporary, error)) {
    const std::string reason = error ? error.message() : "already exists";
    return error == std::errc::no_such_file_or_directory
               ? not_found(out.string() + ": cannot create folder: " + reason)
               : io_error(out.string() + ": cannot create folder: " + reason);
  }
  return temporary;
}

Status publish_temporary_folder(const fs::path& temporary, const fs::path& out) {
  DW_RETURN_IF_ERROR(sync_directory(temporary));
  std::error_code error;
  fs::rename(temporary, out, error);
  if (error) return io_error(out.string() + ": cannot rename into place: " + error.message());
  return sync_directory(folder_of(out));
}

void remove_temporary_folder(const fs::path& temporary) noexcept {
  std::error_code ignored;
  // Its bits may already be those of a folder that nobody may write to.
  fs::permissions(temporary, fs::perms::owner_all, fs::perm_options::add, ignored);
  fs::remove_all(temporary, ignored);
}

}  // namespace deltawire
