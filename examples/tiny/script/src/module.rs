//! The module that is loaded.

use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use ringway_tiny_program::{Program, log};
use wasmi::{
    Caller, Config, Engine, Instance, Linker, Module, Store, StoreLimits, StoreLimitsBuilder, Val, ValType,
};

/// Largest module in bytes. Attack: one that is compiled for long: nobody else has a turn until it is.
pub const MODULE: usize = 128 << 10;
/// Bytes of its memory, and elements of its table. Attack: a module that takes all memory; it has one of each.
const MEMORY: usize = 8 << 20;
const TABLE: usize = 10_000;
/// Steps of a call, and of the module's start. Attack: one that never ends, while nobody else has a turn.
const FUEL: u64 = 20_000_000;
/// Most results of a function.
const RESULTS: usize = 16;

/// What functions of the host know.
struct Data {
    program: Program,
    limits: StoreLimits,
}

/// A module that runs, and the host of it.
pub struct Host {
    program: Program,
    running: Option<(Store<Data>, Instance)>,
}

impl Host {
    /// Without a module.
    pub fn new(program: Program) -> Host {
        Host { program, running: None }
    }

    /// Replaces the module. If the new one is no module, the old one stays; if it can't start, there is none.
    pub fn load(&mut self, bytes: &[u8]) -> Result<String, String> {
        let mut config = Config::default();
        config.consume_fuel(true).wasm_multi_memory(false);
        // An engine keeps the code of all modules that it has compiled.
        let engine = Engine::new(&config);
        let module = Module::new(&engine, bytes).map_err(|error| error.to_string())?;
        // There is no memory for two.
        self.running = None;
        let limits = StoreLimitsBuilder::new()
            .memory_size(MEMORY)
            .memories(1)
            .table_elements(TABLE)
            .tables(1)
            .instances(1)
            .build();
        let mut store = Store::new(&engine, Data { program: self.program.clone(), limits });
        store.limiter(|data| &mut data.limits);
        store.set_fuel(FUEL).map_err(|error| error.to_string())?;
        let mut linker = Linker::new(&engine);
        let say = |caller: Caller<'_, Data>, number: i64| log!(caller.data().program, "the module: {number}");
        linker.func_wrap("host", "log", say).map_err(|error| error.to_string())?;
        let instance =
            linker.instantiate_and_start(&mut store, &module).map_err(|error| error.to_string())?;
        let count = instance.exports(&store).count();
        self.running = Some((store, instance));
        Ok(format!("{count} exports"))
    }

    /// Calls a function: `/NAME/NUMBER/...`.
    pub fn call(&mut self, path: &str) -> Result<String, String> {
        let mut words = path.trim_start_matches('/').split('/');
        let (store, instance) = self.running.as_mut().ok_or("there is no module")?;
        let name = words.next().unwrap_or_default();
        let function =
            instance.get_func(&*store, name).ok_or_else(|| format!("there is no function {name}"))?;
        let kind = function.ty(&*store);
        let words: Vec<&str> = words.collect();
        if words.len() != kind.params().len() || kind.results().len() > RESULTS {
            return Err(format!("{name} takes {} numbers", kind.params().len()));
        }
        let value = |(kind, word): (&ValType, &&str)| match kind {
            ValType::I32 => word.parse().ok().map(Val::I32),
            ValType::I64 => word.parse().ok().map(Val::I64),
            ValType::F32 => word.parse().ok().map(|number: f32| Val::F32(number.into())),
            ValType::F64 => word.parse().ok().map(|number: f64| Val::F64(number.into())),
            _ => None,
        };
        let values: Option<Vec<Val>> = kind.params().iter().zip(&words).map(value).collect();
        let values = values.ok_or_else(|| format!("{name} takes {:?}", kind.params()))?;
        let mut results: Vec<Val> = kind.results().iter().map(|kind| Val::default(*kind)).collect();
        store.set_fuel(FUEL).map_err(|error| error.to_string())?;
        function.call(store, &values, &mut results).map_err(|error| error.to_string())?;
        let texts: Vec<String> = results.iter().map(text).collect();
        Ok(texts.join(" "))
    }
}

fn text(value: &Val) -> String {
    match value {
        Val::I32(number) => number.to_string(),
        Val::I64(number) => number.to_string(),
        Val::F32(number) => number.to_float().to_string(),
        Val::F64(number) => number.to_float().to_string(),
        _ => "a reference".into(),
    }
}
