// The page's files (src/serve/page/), which the build puts into the library.
#pragma once

#include <span>
#include <string_view>

namespace deltawire {

struct PageFile {
  std::string_view name, etag, bytes;
};

std::span<const PageFile> page_files();

}  // namespace deltawire
