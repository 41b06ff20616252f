//! Executable memory that processes have in common, and unwinding of stacks in it.

use std::sync::Arc;

use framehop::{
    CacheNative, ExplicitModuleSectionInfo, MayAllocateDuringUnwind, Module, Unwinder as _, UnwinderNative,
};

use crate::maps::Mapping;
use crate::objects::{Object, Objects, Section};
use crate::records::Sample;
use crate::registers;

/// Upper bound of the frames of a stack: more frames mean that unwinding goes round in circles.
const DEEPEST: usize = 512;
/// Most entries of the kernel's call chains, of kernel and program together (`kernel.perf_event_max_stack`).
pub const CHAIN: usize = 127;

/// The executable memory of one process, or of several that have the same.
pub struct Space {
    places: Vec<Place>,
    unwinder: UnwinderNative<Arc<[u8]>, MayAllocateDuringUnwind>,
    cache: CacheNative<MayAllocateDuringUnwind>,
}

struct Place {
    start: u64,
    end: u64,
    number: usize,
    object: Arc<Object>,
    /// Address in the process minus address in the object.
    base: u64,
}

/// A user stack.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Unwound {
    /// Object and address of each frame, leaf first. A caller's address is the last byte of its call.
    pub frames: Vec<(usize, u64)>,
    /// Whether outer frames are missing.
    pub cut: bool,
    /// Whether a frame was unwound by frame pointers, for lack of anything else.
    pub pointers: bool,
}

impl Space {
    /// Returns the space of a process with these executable mappings.
    pub fn new(pid: u32, mappings: &[Mapping], objects: &mut Objects) -> Self {
        let mut space = Self {
            places: Vec::new(),
            unwinder: UnwinderNative::new(),
            cache: CacheNative::new(),
        };
        for mapping in mappings {
            let object = objects.number(pid, mapping);
            space.add(mapping, object, objects);
        }
        space.places.sort_by_key(|p| p.start);
        space
    }

    fn add(&mut self, mapping: &Mapping, number: usize, objects: &Objects) {
        let object = objects.get(number);
        // a mapping without a file has no addresses of its own: they count from its start
        let address = object.address(mapping.offset).unwrap_or(mapping.offset);
        let base = mapping.start.wrapping_sub(address);
        self.places.push(Place {
            start: mapping.start,
            end: mapping.end,
            number,
            object: Arc::clone(object),
            base,
        });
        if object.sections.eh_frame.is_none() {
            return;
        }
        let of = object.sections.clone();
        let range = |s: &Option<Section>| s.as_ref().map(|s| s.address..s.address + s.bytes.len() as u64);
        let sections = ExplicitModuleSectionInfo {
            base_svma: 0,
            text_svma: of.text,
            got_svma: of.got,
            eh_frame_svma: range(&of.eh_frame),
            eh_frame_hdr_svma: range(&of.eh_frame_hdr),
            eh_frame: of.eh_frame.map(|s| s.bytes),
            eh_frame_hdr: of.eh_frame_hdr.map(|s| s.bytes),
            ..Default::default()
        };
        let module = Module::new(object.module.clone(), mapping.start..mapping.end, base, sections);
        self.unwinder.add_module(module);
    }

    fn place(&self, address: u64) -> Option<&Place> {
        let after = self.places.partition_point(|p| p.start <= address);
        let place = &self.places[after.checked_sub(1)?];
        (address < place.end).then_some(place)
    }

    /// Returns whether something is mapped at the sample's own address.
    pub fn holds(&self, sample: &Sample<'_>) -> bool {
        let ip = sample.registers.map(|r| registers::start(r).0);
        ip.is_none_or(|ip| self.place(ip).is_some())
    }

    /// Returns the user part of a sample.
    pub fn unwind(&mut self, sample: &Sample<'_>) -> Unwound {
        let Some(values) = sample.registers else {
            return Unwound::default();
        };
        let (ip, sp, start) = registers::start(values);
        let mut read = |address: u64| {
            let at = address.checked_sub(sp).ok_or(())? as usize;
            let bytes = sample.stack.get(at..at + 8).ok_or(())?;
            Ok(u64::from_ne_bytes(bytes.try_into().map_err(|_| ())?))
        };
        let mut addresses = Vec::new();
        let mut frames = self.unwinder.iter_frames(ip, start, &mut self.cache, &mut read);
        let mut whole = false;
        while addresses.len() < DEEPEST {
            match frames.next() {
                Ok(Some(frame)) => addresses.push(frame.address()),
                Ok(None) | Err(framehop::Error::ReturnAddressIsNull) => {
                    whole = true;
                    break;
                }
                Err(_) => break,
            }
        }
        self.unwound(addresses, whole, &sample.user_chain)
    }

    /// Returns the frames of these addresses. `whole` is whether unwinding reached the stack's end; otherwise the
    /// kernel's chain of frame pointers continues the stack, if it can.
    fn unwound(&self, mut addresses: Vec<u64>, whole: bool, chain: &[u64]) -> Unwound {
        let mut unwound = Unwound::default();
        if !whole {
            let rest = addresses
                .last()
                .and_then(|last| chain.iter().position(|a| a == last));
            let rest = rest.map_or(&[][..], |at| &chain[at + 1..]);
            addresses.extend(rest.iter().take_while(|a| self.place(**a).is_some()));
            unwound.pointers = !rest.is_empty();
            unwound.cut = rest.is_empty() || chain.len() >= CHAIN;
        }
        for (number, address) in addresses.into_iter().enumerate() {
            // a call that never returns may be the last of its function
            let inside = address - u64::from(number > 0);
            let Some(place) = self.place(inside) else {
                unwound.cut = true;
                break;
            };
            let address = inside.wrapping_sub(place.base);
            unwound.pointers |= !place.object.sections.cover(address);
            unwound.frames.push((place.number, address));
        }
        unwound
    }
}
