#include "sync/temporary_folder.h"

#include <unistd.h>

#include "base/file.h"

namespace deltawire {
namespace fs = std::filesystem;

Result<fs::path> create_temporary_folder(const fs::path& out) {
  std::error_code error;
  if (fs::exists(out, error) && !(fs::is_directory(out, error) && fs::is_empty(out, error))) {
    return invalid_argument(out.string() + ": already exists; remove it or choose another name");
  }
  fs::path clean = out;
  if (clean.filename().empty()) clean = clean.parent_path();  // "out/"
  fs::path temporary = clean;
  temporary += "." + std::to_string(::getpid()) + ".tmp";
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
  fs::rename(temporary, out, error);  // replaces an empty folder
  if (error) return io_error(out.string() + ": cannot rename into place: " + error.message());
  fs::path clean = out;
  if (clean.filename().empty()) clean = clean.parent_path();
  return sync_directory(clean.parent_path().empty() ? "." : clean.parent_path());
}

void remove_temporary_folder(const fs::path& temporary) noexcept {
  std::error_code ignored;
  fs::remove_all(temporary, ignored);
}

}  // namespace deltawire
