
#include <unistd.h>
#include <cerrno>
#include <cstring>

#include "base/file.h"
#include "base/folder.h"
#include "delta/delta_reader.h"
#include "delta/delta_writer.h"
#include "format/checkpoint_files.h"
#include "tensor/sharded_index.h"

namespace deltawire {
namespace fs = std::filesystem;
namespace {

constexpr int kMostLinks = 40;  // the kernel's limit

const char* kind_of(fs::file_type type) {
  switch (type) {
    case fs::file_type::directory:
      return "a folder";
    case fs::file_type::regular:
      return "a file";
    case fs::file_type::block:
    case fs::file_type::character:
      return "a device";
    case fs::file_type::fifo:
      return "a pipe";
    case fs::file_type::socket:
      return "a socket";
    default:
      return "something else";
  }
}

// Removes a slash at the end of a path.
fs::path without_slash(const fs::path& path) {
  return path.filename().empty() && path.has_parent_path() ? path.parent_path() : path;
}

// The target of a link need not exist.
Result<fs::path> follow_links(const fs::path& out) {
  fs::path at = without_slash(out);
  std::error_code error;
  for (int links = 0; fs::is_symlink(fs::symlink_status(at, error)); ++links) {
    const fs::path next = fs::read_symlink(at, error);
    if (error || links == kMostLinks) {
      return invalid_argument(out.string() + ": a symbolic link that leads nowhere");
    }
    at = without_slash(next.is_absolute() ? next : folder_of(at) / next);
  }
  return at;
}

Status check_folder_of(const fs::path& out, const fs::path& target) {
  const fs::path folder = folder_of(target);
  std::error_code error;
  if (!fs::is_directory(folder, error)) {
    return not_found(out.string() + ": cannot create: there is no folder " + folder.string());
  }
  if (::access(folder.c_str(), W_OK | X_OK) != 0) {
    return io_error(out.string() + ": cannot create in " + folder.string() + ": " +
                    std::strerror(errno));
  }
  return {};
}

bool same(const fs::path& a, const fs::path& b) {
  std::error_code error;
  return fs::equivalent(a, b, error) && !error;
}

bool inside(const fs::path& path, const fs::path& folder) {
  std::error_code error;
  fs::path at = fs::weakly_canonical(fs::absolute(without_slash(path), error), error);
  for (; at != at.parent_path(); at = at.parent_path()) {
    if (same(at, folder)) return true;
  }
  return same(at, folder);
}

}  // namespace

Result<fs::path> prepare_output(const fs::path& out, OutputForm form) {
  if (out.empty()) return invalid_argument("the output's name is empty");
  DW_ASSIGN_OR_RETURN(const fs::path target, follow_links(out));
  std::error_code error;
  const fs::file_type type = fs::status(target, error).type();
  const bool exists = type != fs::file_type::not_found && type != fs::file_type::none;
  const auto cannot = [&](const std::string& why) {
    return invalid_argument(out.string() + ": " + why + "; choose another name");
  };
  if (form == OutputForm::kFile) {
    if (exists && type != fs::file_type::regular) {
      return cannot(std::string("is ") + kind_of(type) + ", and the result is a file");
    }
    if (!exists && out.filename().empty())
      return cannot("names a folder, and the result is a file");
  } else if (exists) {
    if (type != fs::file_type::directory) {
      return cannot(std::string("is ") + kind_of(type) + ", and the result is a folder");
    }
    if (!fs::is_empty(target, error)) {
      return invalid_argument(out.string() + ": already exists; remove it or choose another name");
    }
  }
  DW_RETURN_IF_ERROR(check_folder_of(out, target));
  remove_stale_temporaries(target);
  return target;
}

Status refuse_input(const fs::path& out, const fs::path& input,
                    const std::vector<fs::path>& files) {
  const auto refuse = [&](const std::string& how) {
    return invalid_argument(out.string() + ": " + how + " " + input.string() +
                            ", which is an input; choose another name");
  };
  if (out.empty()) return {};
  if (same(out, input)) return refuse("is");
  for (const fs::path& file : files) {
    if (same(out, file)) return refuse("is " + file.string() + " of");
  }
  std::error_code error;
  if (fs::is_directory(input, error) && inside(out, input)) return refuse("lies inside");
  return {};
}

Result<Checkpoint> open_checkpoint(const std::filesystem::path& path) {
  if (is_packed_file(path.filename().string())) {
    return invalid_argument(path.string() +
                            ": a packed file of a store; `deltawire pull` makes a " +
                            "checkpoint of it");
  }
  if (looks_like_delta(path)) {
    return invalid_argument(path.string() + ": a delta, not a checkpoint");
  }
  std::error_code error;
  if (path.filename() == kIndexFileName && !std::filesystem::is_directory(path, error)) {
    return invalid_argument(path.string() + ": the index of a checkpoint; give its folder, " +
                            folder_of(path).string());
  }
  return Checkpoint::open(path);
}

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
  // The permissions may already be those of a read-only folder.
  fs::permissions(temporary, fs::perms::owner_all, fs::perm_options::add, ignored);
  fs::remove_all(temporary, ignored);
}

}  // namespace deltawire
