//! Changes to an inventory, written back to its file.

use super::arguments::PlaceCommand;
use super::source::Source;
use crate::command_error::CommandError;
use crate::input;
use ringway_place::engine::Object;
use ringway_place::inventory;
use std::fs::{File, Metadata};
use std::io::Write;
use std::os::unix::fs::{MetadataExt, fchown};
use std::path::{Path, PathBuf};

/// The content of an inventory file before a command changes it.
pub struct InventoryBefore {
    file: PathBuf,
    text: String,
    objects: Vec<Object>,
}

impl PlaceCommand {
    /// Whether it changes objects that an inventory file describes.
    pub fn changes_objects(&self) -> bool {
        match self {
            PlaceCommand::Balance { dry_run, last, .. } => !dry_run && !last,
            PlaceCommand::Blacklist { host, .. } => host.is_some(),
            PlaceCommand::Maintenance { .. }
            | PlaceCommand::Activate { .. }
            | PlaceCommand::Drain { .. }
            | PlaceCommand::Cordon { .. }
            | PlaceCommand::Uncordon { .. }
            | PlaceCommand::Remove { .. }
            | PlaceCommand::Load { .. }
            | PlaceCommand::Fact { .. } => true,
            _ => false,
        }
    }

    /// Why it can't work on an inventory file, if so, and what to do instead.
    pub fn needs_a_fabric(&self) -> Option<&'static str> {
        match self {
            PlaceCommand::Run(_) => Some(
                "a reservation can't be kept in an inventory file; `try` shows the decision; leave \
                 --inventory out to reserve in a running fabric",
            ),
            PlaceCommand::Confirm { .. } | PlaceCommand::Release { .. } => Some(
                "an inventory file has no reservations; set the VM's `host` and `status` in the file, or \
                 leave --inventory out",
            ),
            PlaceCommand::Put { .. } => {
                Some("`put` is for a running fabric; write the tables into the inventory file itself")
            }
            PlaceCommand::Join { .. } => {
                Some("an inventory file has no host of its own; describe a host in it")
            }
            PlaceCommand::Plugins { .. } => Some("with an inventory file, plugins are named by --plugins"),
            _ => None,
        }
    }
}

impl InventoryBefore {
    /// The state of a file, and of the objects read from it.
    pub fn of(file: &Path, source: &Source) -> Result<InventoryBefore, CommandError> {
        let text = input::text(file, inventory::LARGEST, "an inventory file")?;
        Ok(InventoryBefore { file: file.into(), text, objects: source.all_objects()? })
    }

    /// Saves the changes since, if there are any. The file is replaced as a whole, or stays as it was.
    pub fn save(self, source: &Source) -> Result<(), CommandError> {
        let what = |error: String| {
            let file = self.file.display();
            CommandError::Failed(format!("{file}: the change is not saved: {error}"))
        };
        let text = inventory::edit(&self.text, &self.objects, &source.all_objects()?).map_err(what)?;
        if text == self.text {
            return Ok(());
        }
        let now = input::text(&self.file, inventory::LARGEST, "an inventory file")?;
        if now != self.text {
            return Err(what("the file was changed meanwhile; repeat the command".into()));
        }
        replace(&self.file, &text).map_err(|error| what(error.to_string()))
    }
}

/// Replaces a file, keeping its owner and its permissions. A symbolic link stays, and what it points to is replaced.
pub fn replace(file: &Path, text: &str) -> std::io::Result<()> {
    let file = std::fs::canonicalize(file)?;
    let known = std::fs::metadata(&file)?;
    if !known.is_file() {
        return Err(std::io::Error::other("it is not a regular file"));
    }
    let folder = file.parent().unwrap_or(Path::new("/"));
    let name = file.file_name().unwrap_or_default().to_string_lossy();
    let new = folder.join(format!(".{name}.{}", std::process::id()));
    // A file of that name is another's, and stays.
    let mut out = File::create_new(&new)?;
    let mut written = || {
        copy_owner(&out, &known)?;
        // A change of the owner clears bits of the permissions.
        out.set_permissions(known.permissions())?;
        out.write_all(text.as_bytes())?;
        out.sync_all()?;
        std::fs::rename(&new, &file)?;
        File::open(folder)?.sync_all()
    };
    written().inspect_err(|_| drop(std::fs::remove_file(&new)))
}

/// Gives a new file the owner and the group of the one that it replaces. Only the group of a file of this user may be
/// out of reach.
fn copy_owner(new: &File, known: &Metadata) -> std::io::Result<()> {
    let ours = new.metadata()?;
    if (ours.uid(), ours.gid()) == (known.uid(), known.gid()) {
        return Ok(());
    }
    match fchown(new, Some(known.uid()), Some(known.gid())) {
        Err(error) if ours.uid() != known.uid() => {
            let what = format!("the file belongs to another user, {}: {error}", known.uid());
            Err(std::io::Error::new(error.kind(), what))
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn a_replaced_file_keeps_its_permissions_and_links() {
        let folder = std::env::temp_dir().join(format!("rw-save-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let (file, link) = (folder.join("i.toml"), folder.join("link.toml"));
        std::fs::write(&file, "a").unwrap();
        std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o640)).unwrap();
        std::os::unix::fs::symlink(&file, &link).unwrap();
        replace(&link, "b").unwrap();
        assert_eq!(std::fs::read_to_string(&file).unwrap(), "b");
        assert_eq!(std::fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o640);
        assert!(std::fs::symlink_metadata(&link).unwrap().is_symlink());
        assert_eq!(std::fs::read_dir(&folder).unwrap().count(), 2, "nothing is left behind");
        assert!(replace(&folder, "c").is_err());
        // Only root may give files away.
        let is_root = std::fs::metadata(&folder).unwrap().uid() == 0;
        if is_root && std::os::unix::fs::chown(&file, Some(65_534), Some(65_534)).is_ok() {
            replace(&file, "d").unwrap();
            let known = std::fs::metadata(&file).unwrap();
            assert_eq!((known.uid(), known.gid(), known.mode() & 0o777), (65_534, 65_534, 0o640));
        }
        let foreign = folder.join(format!(".i.toml.{}", std::process::id()));
        std::fs::write(&foreign, "foreign").unwrap();
        assert!(replace(&file, "e").is_err());
        assert_eq!(std::fs::read_to_string(&foreign).unwrap(), "foreign");
        std::fs::remove_dir_all(&folder).unwrap();
    }
}
