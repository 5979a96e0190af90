#pragma once

#include <map>
#include <string>
#include <vector>

#include "checkpoint/stored.h"
#include "tutti/checkpoint.h"

namespace tutti::distributed {

/// A file that a save makes: under another name, until all is written.
struct NewFile {
  std::string path, part;
  Catalogue tensors;         ///< of it
  int64_t header_bytes = 0;  ///< 0: there is only a header
  int64_t bytes = 0;         ///< of the whole file
};

/// The files of a save. The last one is what `path` names; an index makes the others known.
struct Layout {
  std::vector<NewFile> files;
  FileKind kind;
  std::string id;  ///< names of files that are not whole, and of an index's, have it
};

/// @throws UsageError  the format can't hold these tensors, or the metadata
Layout lay_out(const std::string& path, const std::map<std::string, TensorStructInfo>& tensors, const SaveOptions& options);

/// The front of such a file, with the CRCs that its tensors have; of an index all of it.
std::string front_of(const Layout& layout, NewFile& file, const SaveOptions& options);

/// Files of saves to this path that have not come to their end, as a process was killed, and of an index those that it no longer
/// names.
void remove_remains(const std::string& path);

}  // namespace tutti::distributed
