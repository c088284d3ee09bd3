//! PVH entry, static page tables, and the way to ring 3, where the image's `guest_main` goes on.

use core::arch::global_asm;

// The entry runs in protected mode without paging. It enables long mode with all of the first 4 GB identity-mapped in
// pages of 2 MB that ring 3 may use, and returns into ring 3, which may use I/O ports by the bitmap of the task state
// segment: KVM without hardware virtualization keeps no I/O privilege level. A monitor that passes a command line by
// its address is another one than the crate `vmm`: the image of functions fills the interrupt table there. Otherwise
// there is none: a fault is a triple fault, which ends the machine.
global_asm!(
    r#"
.section .note.pvh, "a", @note
.align 4
.long 4, 4, 18
.asciz "Xen"
.long start32
.align 4
.long 8, 4, 1               // of a program's image: the version of what it and its monitor say
.asciz "Ringway"
.long {version}

.section .text32, "ax"
.code32
.global start32
start32:
  mov eax, cr4
  or eax, 0x620             // PAE, OSFXSR, OSXMMEXCPT
  mov cr4, eax
  mov eax, offset pml4
  mov cr3, eax
  mov ecx, 0xc0000080       // EFER: long mode
  rdmsr
  or eax, 0x100
  wrmsr
  mov eax, cr0
  and eax, 0xfffffffb       // no emulation of the floating point unit
  or eax, 0x80000003        // paging
  mov cr0, eax
  lgdt [gdt_pointer]
  ljmp 8, offset start64
.code64
start64:
  mov edi, ebx              // the start information
  cmp qword ptr [rdi + 24], 0
  je 2f
  lidt [idt_pointer]
2:
  mov eax, offset task      // the task state segment's address, in its descriptor
  mov [task_descriptor + 2], ax
  shr eax, 16
  mov [task_descriptor + 4], al
  mov [task_descriptor + 7], ah
  mov ax, 0x28
  ltr ax
  mov rsp, 0x9f000          // the stack: below are the tables of the monitor, read before, and then no memory
  push 0x1b                 // SS and stack of ring 3
  push 0x9efc0
  push 2                    // flags
  push 0x23                 // CS
  push offset user_entry
  iretq
user_entry:
  xor ebp, ebp
  and rsp, -16
  call guest_main
  ud2

.section .data.tables, "aw"
.align 8
gdt:
  .quad 0, 0x00af9b000000ffff, 0x00cf93000000ffff, 0x00cff3000000ffff, 0x00affb000000ffff
task_descriptor:
  .quad 0x0000890000000000 + task_end - task, 0
gdt_pointer:
  .word 55
  .quad gdt
.align 8
task:                       // ring 3 may use I/O ports up to 0xfff
  .long 0
  .quad kernel_stack_end    // the stack of ring 0
  .skip 90
  .word 104
  .skip 512
task_end:
  .byte 0xff
idt_pointer:
  .word 4095
  .quad ringway_idt
.align 4096
pml4:
  .quad pdpt + 7
  .skip 4088
.global ringway_pdpt
ringway_pdpt:
pdpt:
  .quad directories + 7, directories + 0x1007, directories + 0x2007, directories + 0x3007
  .skip 4064
directories:
.set i, 0
.rept 2048
  .quad i * 0x200000 + 0x87
  .set i, i + 1
.endr

.section .bss.tables, "aw", @nobits
.align 4096
.global ringway_idt
ringway_idt:
  .skip 4096
  .skip 16384
kernel_stack_end:
"#,
    version = const crate::start::VERSION
);

/// What the monitor passes.
pub struct Start {
    /// The command line: the first module; or the text that another monitor passes.
    pub line: &'static str,
    /// Address and length of the second module, another monitor's first one; zeros if there is none.
    module: [u64; 2],
    /// The monitor is another one than the crate `vmm`.
    #[allow(dead_code, reason = "the image of roles has one monitor")]
    pub is_other: bool,
    /// The end of the memory that contains the image.
    pub memory_end: u64,
    /// Address of ACPI's root pointer; 0 if there is none.
    #[allow(dead_code, reason = "only the image of functions turns its machine off")]
    pub tables: u64,
    /// All memory: begin and end; zeros behind the last part.
    #[allow(dead_code, reason = "only the image of functions looks for devices")]
    pub ram: [[u64; 2]; RAM],
}

/// Parts of the memory. Further ones count as one with the last one.
const RAM: usize = 16;

/// First number of the start information (Xen's `hvm_start_info`).
const MAGIC: u32 = 0x336e_c578;
/// Longest command line.
const LINE: u64 = 4096;
/// The end of the memory that is mapped.
const MAPPED: u64 = 1 << 32;

impl Start {
    /// Reads the start information.
    ///
    /// # Safety
    /// `at` is the address that the monitor passed in EBX, or memory of other contents.
    pub unsafe fn read(at: u64) -> Start {
        let ram = [[0; 2]; RAM];
        let mut start = Start { line: "", module: [0; 2], is_other: false, memory_end: 0, tables: 0, ram };
        // SAFETY: the monitor wrote the tables before the guest began, and nobody changes them.
        unsafe {
            let word = |at: u64| (at as *const u32).read_unaligned();
            let long = |at: u64| (at as *const u64).read_unaligned();
            if word(at) != MAGIC {
                return start;
            }
            let (modules, list, line) = (word(at + 12), long(at + 16), long(at + 24));
            let module = |index: u32| {
                let at = list + 32 * u64::from(index);
                if index < modules { [long(at), long(at + 8)] } else { [0; 2] }
            };
            start.is_other = line != 0;
            let [text, len] = if start.is_other {
                let ends = |len: &u64| ((line + len) as *const u8).read() == 0;
                [line, (0..LINE).find(ends).unwrap_or(LINE)]
            } else {
                module(0)
            };
            start.module = module(if start.is_other { 0 } else { 1 });
            start.tables = long(at + 32);
            if text != 0 {
                let bytes = core::slice::from_raw_parts(text as *const u8, len.min(LINE) as usize);
                start.line = core::str::from_utf8(bytes).unwrap_or("line=invalid");
            }
            let (map, entries) = (long(at + 40), word(at + 48));
            let (image, mut parts) = (ringway_bare::heap::image_end(), 0);
            for entry in (0..u64::from(entries)).map(|index| map + 24 * index) {
                let (base, end) = (long(entry), long(entry).saturating_add(long(entry + 8)));
                if word(entry + 16) != 1 {
                    continue;
                }
                if (base..end).contains(&image) {
                    start.memory_end = end.min(MAPPED);
                }
                match start.ram.get_mut(parts) {
                    Some(part) => *part = [base, end],
                    None => start.ram[RAM - 1][1] = start.ram[RAM - 1][1].max(end),
                }
                parts += 1;
            }
        }
        start
    }

    /// Where the second module begins; the end of the addresses if there is none.
    pub fn module_at(&self) -> u64 {
        if self.module[1] == 0 { u64::MAX } else { self.module[0] }
    }

    /// The second module.
    pub fn module(&self) -> &'static [u8] {
        match self.module {
            [0, _] | [_, 0] => &[],
            // SAFETY: the monitor wrote the module before the guest began, and nobody changes it. Only `read` makes a
            // start.
            [at, len] => unsafe { core::slice::from_raw_parts(at as *const u8, len as usize) },
        }
    }
}
