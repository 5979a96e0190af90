#pragma once

#include <map>
#include <set>
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

/// What saves to this path have left that have not come to their end, as a process was killed.
void remove_remains(const std::string& path) noexcept;

/// The files that an index names, if a save has made them; none if there is no such index.
std::set<std::string> files_of_index(const std::string& path) noexcept;
/// Removes these, but what an index in the same folder still names: it may be a copy of the one that was replaced.
void remove_replaced(const std::set<std::string>& files) noexcept;
std::string id_of_index(const std::set<std::string>& files);  ///< in the names of these; empty: there are none

}  // namespace tutti::distributed
